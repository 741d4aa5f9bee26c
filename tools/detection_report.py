"""Report on a detector's results: ``mm-metrics detection`` as a script, like OpenMMLab's tools."""

from mm_metrics_command import script

if __name__ == "__main__":
    script("detection")
