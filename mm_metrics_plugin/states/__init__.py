"""What is accumulated between batches."""

from mm_metrics_plugin.states.base import CONCAT, MAX, SUM, Batch, RowBuffer, State, StateGroup, merge_all

__all__ = ["CONCAT", "MAX", "SUM", "Batch", "RowBuffer", "State", "StateGroup", "merge_all"]
