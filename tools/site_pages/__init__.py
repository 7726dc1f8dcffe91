"""Pages of the documentation site that are made from the code and the data; tools/build_docs.py puts them together."""
