"""Settings for a try on this machine. The database is the one in which Duly keeps its tasks."""

import os
from urllib.parse import unquote, urlsplit

_database = urlsplit(os.environ["DULY_DATABASE_URL"])

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _database.hostname,
        "PORT": _database.port,
        "NAME": _database.path.lstrip("/"),
        "USER": unquote(_database.username or ""),
        "PASSWORD": unquote(_database.password or ""),
    }
}
DULY_REDIS_URL = os.environ.get("DULY_REDIS_URL", "redis://127.0.0.1:6379/0")

SECRET_KEY = os.environ.get("SECRET_KEY", "only for a try")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["signups"]
ROOT_URLCONF = "project.urls"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
