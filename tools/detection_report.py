"""Reports on a detector's results: ``mm-metrics detection`` for people used to OpenMMLab's tools/."""

from mm_metrics_command import script

if __name__ == "__main__":
    script("detection")
