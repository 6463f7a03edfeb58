"""The front end for Ingresses: Ingresses, Services, EndpointSlices and Secrets become servers, backends and certificates."""
