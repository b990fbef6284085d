"""Pages of the service in the browser: Jinja templates, and JavaScript that refreshes them."""
