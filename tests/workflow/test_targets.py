"""Every table and figure is a target by name, made from whatever runs exist: nothing is trained."""

from rltok_core.report.products import PRODUCTS


def test_a_named_table_plans_itself_alone(workflow):
    assert workflow.plan("main_table", "flops_bpb").keys() == {"main_table", "flops_bpb"}


def test_every_product_is_a_target(workflow):
    done = workflow("--list-rules")
    assert set(PRODUCTS) <= set((done.stdout + done.stderr).split())
