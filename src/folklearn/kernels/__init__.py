"""Pure kernels on arrays: they know no learner and validate nothing."""
