"""What the demonstration needs beside the package."""
