"""The endpoint: a sign-up and its task are one transaction."""

import json

from django.db import IntegrityError, connection, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

import duly
from signups.models import SignUp


@csrf_exempt  # no browser form, no cookie
@require_POST
def sign_up(request: HttpRequest) -> JsonResponse:
    try:
        email = str(json.loads(request.body)["email"])
    except (ValueError, TypeError, KeyError):
        return JsonResponse({"error": "email is missing"}, status=422)
    try:
        with transaction.atomic():
            # In any order: both are there once this commits, and neither is if it does not.
            task_id = duly.submit_in_sync(connection.connection, "signup.welcome", {"email": email})
            signup = SignUp.objects.create(email=email)
    except IntegrityError:
        return JsonResponse({"error": f"{email} has signed up before"}, status=409)
    return JsonResponse({"id": signup.pk, "task": str(task_id)}, status=201)


@require_GET
def show(request: HttpRequest, number: int) -> JsonResponse:
    signup = get_object_or_404(SignUp, pk=number)
    return JsonResponse({"id": signup.pk, "email": signup.email, "welcomed_at": signup.welcomed_at})
