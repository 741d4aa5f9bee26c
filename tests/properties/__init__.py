"""What must hold whatever the data: properties over every metric and over the detection functions."""
