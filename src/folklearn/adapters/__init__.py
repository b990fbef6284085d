"""The learners behind the interfaces of other libraries."""
