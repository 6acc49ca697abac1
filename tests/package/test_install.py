"""`cmake --install`: every file where it belongs, and a program that works from there."""

import os
import re
import subprocess

import pytest

from conftest import BINARY, BUILD, SOURCE, berth, needs

DEMO = SOURCE / "assets/demo/berth-demo.safetensors"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix") / "opt"
    subprocess.run(
        ["cmake", "--install", BUILD, "--prefix", folder], check=True, stdout=subprocess.DEVNULL
    )
    return folder


def installed(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def test_files(prefix):
    version = berth("--version").split()[1]
    files = installed(prefix)
    lib = next(f for f in files if f.endswith("/libberth.so")).rsplit("/", 1)[0]
    wanted = {
        "bin/berth",
        "include/berth/berth.h",
        f"{lib}/libberth.so",
        f"{lib}/libberth.so.0",
        f"{lib}/libberth.so.{version}",
        f"{lib}/pkgconfig/berth.pc",
        "share/man/man1/berth.1",
        "share/bash-completion/completions/berth",
        "share/fish/vendor_completions.d/berth.fish",
        "share/zsh/site-functions/_berth",
        "lib/systemd/system/berth.service",
        "share/doc/berth/README.md",
        "share/doc/berth/LICENSE",
    }
    wanted |= {
        f"share/berth/workflows/{p.name}" for p in (SOURCE / "examples/workflows").glob("*.json")
    }
    if DEMO.exists():
        wanted |= {
            f"share/berth/demo/{name}"
            for name in (DEMO.name, "tokenizer.json", "README.md", "LICENSE")
        }
    assert {f for f in files if not f.startswith("share/doc/berth/docs/")} == wanted
    assert "share/doc/berth/docs/install.md" in files
    assert not [f for f in files if "docs/man" in f]


def test_options_of_the_service_are_left_alone(tmp_path):
    """An administrator's /etc/default/berth is nothing to install over, with any prefix."""
    for prefix in ("/usr", "/usr/local"):
        subprocess.run(
            ["cmake", "--install", BUILD, "--prefix", prefix],
            check=True,
            stdout=subprocess.DEVNULL,
            env=dict(os.environ, DESTDIR=str(tmp_path)),
        )
        assert (tmp_path / prefix[1:] / "bin/berth").exists()
    assert not (tmp_path / "etc").exists()


def test_the_program_runs_from_there(prefix):
    shown = subprocess.run(
        [prefix / "bin/berth", "version"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith(berth("--version").strip())


def test_it_finds_the_demo_of_its_own_prefix(prefix, tmp_path):
    if not DEMO.exists():
        pytest.skip("no demo model in this tree")
    command = [
        prefix / "bin/berth",
        "serve",
        "--demo",
        "--base-directory",
        tmp_path,
        "--port",
        "0",
        "--quick-test-for-ci",
        "--cpu",
    ]
    subprocess.run(command, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin"})
    model = prefix / "share/berth/demo" / DEMO.name
    model.rename(model.with_suffix(".away"))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
        )
    finally:
        model.with_suffix(".away").rename(model)
    assert done.returncode == 1 and str(prefix / "share/berth/demo") in done.stderr


def test_what_is_printed_is_of_this_program(prefix):
    assert (prefix / "share/bash-completion/completions/berth").read_text() == berth(
        "completion", "bash"
    )
    assert (prefix / "share/fish/vendor_completions.d/berth.fish").read_text() == berth(
        "completion", "fish"
    )
    assert (prefix / "share/zsh/site-functions/_berth").read_text() == berth("completion", "zsh")
    assert berth("help", "--man") in (prefix / "share/man/man1/berth.1").read_text()


def test_the_version_is_written_once():
    """CMake's number is the program's, and the changelog of the package is about it."""
    cmake = re.search(
        r"^project\(berth VERSION (\S+) ", (SOURCE / "CMakeLists.txt").read_text(), re.M
    ).group(1)
    assert berth("--version") == f"berth {cmake}\n"
    assert (SOURCE / "packaging/deb/changelog").read_text().startswith(f"berth ({cmake}) ")


def test_the_unit(prefix):
    unit = (prefix / "lib/systemd/system/berth.service").read_text()
    settings = [line.split("=", 1) for line in unit.splitlines() if re.match(r"[A-Z]\w*=", line)]
    start = next(value for name, value in settings if name == "ExecStart")
    assert start == f"{prefix}/bin/berth serve $BERTH_OPTIONS"
    for name, value in [
        ("Type", "notify"),
        ("DynamicUser", "yes"),
        ("StateDirectory", "berth"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
    ]:
        assert [name, value] in settings
    grace = int(
        re.search(r"may take to end\s+\(default (\d+)\)", berth("serve", "--help")).group(1)
    )
    assert int(dict(settings)["TimeoutStopSec"]) > grace + 2
    options = (SOURCE / "packaging/berth.default").read_text()
    assert (
        "BERTH_OPTIONS=--demo\n" in options
        and ["Environment", "BERTH_HOME=%S/berth BERTH_OPTIONS=--demo"] in settings
    )


def test_systemd_understands_the_unit(prefix):
    needs("systemd-analyze")
    unit = prefix / "lib/systemd/system/berth.service"
    verify = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
    )
    said = [
        line
        for line in verify.stderr.splitlines()
        if "berth.service" in line or str(prefix) in line
    ]
    assert verify.returncode == 0 and said == []
    # 0 is locked away, 10 wide open; 2.0 is called OK. Where it cannot say (no such option), it is
    # not asked.
    shown = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit],
        capture_output=True,
        text=True,
    )
    exposure = re.search(r"exposure level for berth.service: ([\d.]+)", shown.stdout)
    if exposure:
        assert float(exposure.group(1)) <= 2.5


def test_packages(tmp_path):
    """CPack's packages as this build makes them: packaging/test-deb.sh installs the real ones."""
    needs("dpkg-deb")
    needs("dpkg-shlibdeps")
    needs("file")
    if "SANITIZE:STRING=\n" not in (BUILD / "CMakeCache.txt").read_text():
        pytest.skip("nobody packages a sanitizer build")
    subprocess.run(
        [
            "cpack",
            "--config",
            "CPackConfig.cmake",
            "-G",
            "DEB",
            "-D",
            f"CPACK_PACKAGE_DIRECTORY={tmp_path}",
            "-D",
            "CPACK_INSTALL_PREFIX=/usr",
        ],
        cwd=BUILD,
        check=True,
        capture_output=True,
    )
    version = berth("--version").split()[1]
    packages = {p.name.split("_")[0]: p for p in tmp_path.glob("*.deb")}
    assert set(packages) == {"berth", "libberth0", "libberth-dev"}

    def field(package, name):
        return subprocess.run(
            ["dpkg-deb", "-f", packages[package], name], capture_output=True, text=True, check=True
        ).stdout.strip()

    for package in packages:
        assert field(package, "Version") == version
    for library in (
        "libc6",
        "libjansson4",
        "libwebsockets",
        "libsqlite3-0",
        "libpng16-16",
        "libtiff6",
        "libyaml-0-2",
        "libcurl4",
        "libavformat",
    ):
        assert library in field("berth", "Depends")
    assert "python" not in field("berth", "Depends")
    assert field("libberth-dev", "Depends") == f"libberth0 (= {version})"
    listed = subprocess.run(
        ["dpkg-deb", "-c", packages["berth"]], capture_output=True, text=True, check=True
    ).stdout
    for path in (
        "./usr/bin/berth",
        "./usr/lib/systemd/system/berth.service",
        "./etc/default/berth",
        "./usr/share/berth/workflows/demo.json",
    ):
        assert re.search(rf" root/root .* {re.escape(path)}$", listed, re.M), path
    assert not re.search(r"\./usr/(local|include)", listed)
    scripts = subprocess.run(
        ["dpkg-deb", "-I", packages["berth"], "conffiles"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert scripts == "/etc/default/berth\n"
