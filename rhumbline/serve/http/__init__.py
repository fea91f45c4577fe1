"""The service over HTTP: requests to method calls, jobs to JSON, errors to problem details."""
