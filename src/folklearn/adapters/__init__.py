"""`folklearn.Model` as the classifiers of other libraries."""
