"""Report on a classifier's results: ``mm-metrics classification`` as a script, like OpenMMLab's tools."""

from mm_metrics_command import script

if __name__ == "__main__":
    script("classification")
