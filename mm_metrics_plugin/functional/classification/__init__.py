"""Classification metrics on arrays of scores and labels."""
