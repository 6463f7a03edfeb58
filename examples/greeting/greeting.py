from kubeloop import Client, Controller, Manager, Model, ObjectMeta, Resource, custom_resource, run, set_controller_reference
from kubeloop.api.core.v1 import ConfigMap


class GreetingSpec(Model):
    name: str = "world"


@custom_resource("example.com/v1", plural="greetings")
class Greeting(Resource):
    spec: GreetingSpec


class GreetingController(Controller[Greeting], owns=[ConfigMap], workers=2):
    async def reconcile(self, greeting: Greeting) -> None:
        if not self.owned(ConfigMap, greeting):
            metadata = ObjectMeta(name=greeting.metadata.name, namespace=greeting.metadata.namespace)
            config_map = ConfigMap(metadata=metadata, data={"text": f"Hello, {greeting.spec.name}!"})
            set_controller_reference(greeting, config_map)
            await self.client.create(config_map)


async def main() -> None:
    async with Client.from_config() as client:
        await Manager(client, [GreetingController()]).run()


if __name__ == "__main__":
    run(main())
