"""Image maps, names of images, and simulated pulls with their reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.kubelet.images import ImageError, ImageMap, ImagePuller, check_name
from kubeloop.meta import ConfigError
from kubeloop.timing import FakeClock

MAP = """
images:
  web: {command: [serve], args: [8080], environment: {A: 1}, files: {/srv/x: text}, workingDirectory: /srv, user: 1000}
  web:2: {command: [serve2]}
  registry:5000/team/app: {command: [app]}
  slow: {command: [x], pull: {seconds: 3}}
  broken: {command: [x], pull: {error: "manifest unknown"}}
"""


@pytest.fixture
def images(tmp_path: Path) -> ImageMap:
    path = tmp_path / "images.yaml"
    path.write_text(MAP)
    return ImageMap(path)


@pytest.mark.parametrize(
    ("image", "command"),
    [
        pytest.param("web", "serve", id="an image without a tag"),
        pytest.param("web:1", "serve", id="any tag of an entry without one"),
        pytest.param("web:2", "serve2", id="the entry of the tag itself comes first"),
        pytest.param("registry:5000/team/app:v1", "app", id="a registry with a port"),
        pytest.param("web@sha256:" + "a" * 64, "serve", id="a digest"),
        pytest.param("other", None, id="no entry"),
    ],
)
def test_the_entry_of_an_image_is_found(images: ImageMap, image: str, command: str | None) -> None:
    entry = images.find(image)
    assert (entry.command[0] if entry else None) == command


def test_an_entry_has_all_its_fields(images: ImageMap) -> None:
    entry = images.find("web")
    assert entry is not None
    assert (entry.args, entry.environment, entry.files, entry.working_directory, entry.user) == (
        ("8080",),
        {"A": "1"},
        {"/srv/x": "text"},
        "/srv",
        1000,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("images: [a]", "must have the form", id="no mapping"),
        pytest.param("image: {}", "must have the form", id="another field"),
        pytest.param("images: {web: {comand: [x]}}", "unknown field comand; known are command", id="a misspelt field"),
        pytest.param("images: {web: {command: x}}", "command must be a list of words", id="a command that is a text"),
        pytest.param("images: {web: {workingDirectory: srv}}", "workingDirectory must be an absolute path", id="a relative folder"),
        pytest.param("images: {web: {files: {x: y}}}", "files must be a mapping of absolute paths", id="a relative file"),
        pytest.param("images: {web: {user: -1}}", "user must be", id="a negative user"),
        pytest.param("images: {", "images.yaml", id="no YAML"),
    ],
)
def test_a_map_that_makes_no_sense_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "images.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        ImageMap(path)


def test_a_missing_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        ImageMap(tmp_path / "none.yaml")


def test_a_map_that_breaks_later_stays_in_use_as_it_was(images: ImageMap) -> None:
    assert images.path is not None
    images.path.write_text("images: [")
    assert images.find("web") is not None
    assert "images.yaml" in images.fault
    images.path.write_text("images: {new: {command: [x]}}")
    assert images.find("new") is not None
    assert images.fault == ""


@pytest.mark.parametrize("image", ["web", "web:1.0_a", "localhost:5000/a/b-c:x", "a.b/c__d@sha256:" + "0" * 64])
def test_names_of_images_are_accepted(image: str) -> None:
    check_name(image)


@pytest.mark.parametrize("image", ["", "Web", "web:", "a//b", "-web", "web:ta g", "web@sha256:xyz"])
def test_malformed_names_are_invalid(image: str) -> None:
    with pytest.raises(ImageError) as raised:
        check_name(image)
    assert raised.value.reason == "InvalidImageName"
    assert raised.value.message.startswith(f'Failed to apply default image tag "{image}": ')


class Pull:
    """A puller with its clock, and the Events of its pulls."""

    def __init__(self, images: ImageMap) -> None:
        self.clock = FakeClock()
        self.puller = ImagePuller(images, self.clock)
        self.events: list[tuple[str, str]] = []

    async def ensure(self, image: str, policy: str = "IfNotPresent") -> str:
        """Return the reason of the failure, or an empty text."""
        try:
            await self.puller.ensure(image, policy, "uid", lambda _, reason, message: self.events.append((reason, message)))
        except ImageError as error:
            return error.reason
        return ""


@pytest.mark.parametrize(
    ("image", "policy", "reason", "events"),
    [
        pytest.param("web", "IfNotPresent", "", ["Pulled"], id="a mapped image is present"),
        pytest.param("web", "Always", "", ["Pulling", "Pulled"], id="with Always it is pulled"),
        pytest.param("web", "Never", "", ["Pulled"], id="with Never it is used"),
        pytest.param("none", "Never", "ErrImageNeverPull", ["ErrImageNeverPull"], id="with Never a missing image stays missing"),
        pytest.param("none", "IfNotPresent", "ErrImagePull", ["Pulling", "Failed"], id="an image without an entry cannot be pulled"),
        pytest.param("broken", "IfNotPresent", "ErrImagePull", ["Pulling", "Failed"], id="the map lets a pull fail"),
        pytest.param("BAD", "Always", "InvalidImageName", ["InspectFailed"], id="a malformed name"),
    ],
)
async def test_a_pull_has_the_reason_and_events_of_kubelet(
    images: ImageMap, image: str, policy: str, reason: str, events: list[str]
) -> None:
    pull = Pull(images)
    assert await pull.ensure(image, policy) == reason
    assert [name for name, _ in pull.events] == events


async def test_a_failed_pull_backs_off_for_ten_seconds_and_then_twice_as_long(images: ImageMap) -> None:
    pull = Pull(images)
    reasons = []
    for seconds in (0.0, 1.0, 9.1, 19.0, 1.1):
        await pull.clock.advance(seconds)
        reasons.append(await pull.ensure("none"))
    assert reasons == ["ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff", "ErrImagePull"]


async def test_an_entry_that_is_added_ends_the_back_off(images: ImageMap) -> None:
    pull = Pull(images)
    assert await pull.ensure("none") == "ErrImagePull"
    assert images.path is not None
    images.path.write_text("images: {none: {command: [x]}}")
    assert await pull.ensure("none") == ""


async def test_the_message_of_a_missing_entry_says_what_to_add(images: ImageMap) -> None:
    pull = Pull(images)
    await pull.ensure("shop/none:1")
    assert "has no entry for it; add shop/none: {command: [...]}" in dict(pull.events)["Failed"] or any(
        "add shop/none: {command: [...]}" in message for _, message in pull.events
    )
