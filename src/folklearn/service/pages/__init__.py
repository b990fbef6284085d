"""The pages that people look at."""

from starlette.routing import BaseRoute

from folklearn.service.service import Service


def pages(service: Service) -> list[BaseRoute]:
    """Return the routes of the pages."""
    return []
