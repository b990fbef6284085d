"""Online multiclass boosting: many weak learners made into a strong one."""
