"""The maths: NumPy arrays in, NumPy arrays or small result objects out. No torch, no mmengine."""
