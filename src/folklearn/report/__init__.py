"""Pictures and pages from plain tables; nothing here knows a model or a learner."""
