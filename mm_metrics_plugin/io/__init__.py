"""Reading of result, annotation and state files without running code in them; atomic writing of reports."""
