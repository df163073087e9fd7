"""The app's own table."""

from django.db import models


class SignUp(models.Model):
    email = models.EmailField(unique=True)
    welcomed_at = models.DateTimeField(null=True)
