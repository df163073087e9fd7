"""`python manage.py duly_worker`: run the handlers, with Django set up, until SIGTERM or Ctrl-C."""

from django.core.management.base import BaseCommand

from signups.tasks import worker


class Command(BaseCommand):
    help = "Run the project's Duly worker."

    def handle(self, *args: object, **options: object) -> None:
        worker.run()
