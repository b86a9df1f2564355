"""The app that `flwr run` hands out.

Clients with data of their own give `client_app` a loader.
"""

from pfl_lib.flower.apps import client_app, server_app

server = server_app()
client = client_app()
