"""CUDA C++ candidates where there is no GPU: translated, built by the C++ compiler, and run thread by thread."""
