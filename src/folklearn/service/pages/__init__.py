"""The pages that people look at: rendered here, with a little JavaScript that keeps them moving."""

from starlette.routing import BaseRoute, Route

from folklearn.service.pages import views
from folklearn.service.pages.desk import Desk
from folklearn.service.pages.looks import Looks
from folklearn.service.service import Service


def pages(service: Service, looks: Looks) -> list[BaseRoute]:
    """Return the routes of the pages."""
    desk = Desk(service, looks)
    return [
        Route("/static/{file}", desk.open_to_all(views.static)),
        Route("/login", desk.open_to_all(views.login_form)),
        Route("/login", desk.open_to_all(views.login), methods=["POST"]),
        Route("/logout", desk.open_to_all(views.logout), methods=["POST"]),
        Route("/", desk.for_sessions(views.models)),
        Route("/models/{name}", desk.for_sessions(views.model)),
        Route("/models/{name}/pictures/{picture}.svg", desk.for_sessions(views.picture)),
        Route("/models/{name}/report", desk.for_sessions(views.report)),
        Route("/models/{name}/verify", desk.for_sessions(views.verify), methods=["POST"]),
    ]
