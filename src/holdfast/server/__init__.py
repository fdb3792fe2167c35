"""The REST API and the web console: `create_app(hold)` to mount, `serve(hold)` to run."""
