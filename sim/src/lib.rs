//! A simulated CUDA driver, made for tests.
