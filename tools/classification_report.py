"""Reports on a classifier's results: ``mm-metrics classification`` for people used to OpenMMLab's tools/."""

from mm_metrics_command import script

if __name__ == "__main__":
    script("classification")
