"""The Python of the README, run as it stands there, in a home where the library is installed as it says.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

# Not there in the kit for machines with a GPU.
README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


@unittest.skipUnless(README.is_file(), "needs the repository's README.md")
class Readme(unittest.TestCase):
    def test_the_snippet_runs(self):
        snippet = re.search(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
        with tempfile.TemporaryDirectory() as home:
            folder = pathlib.Path(home, "warpmem", "lib")
            folder.mkdir(parents=True)
            (folder / "libwarpmem.so").symlink_to(pathlib.Path(os.environ["WARPMEM_LIBRARY"]).resolve())
            program = snippet[1] + "print('a block at', hex(address), 'was freed')\n"
            program = program.replace("must(warp.warp_free(block))", "address = block.value; must(warp.warp_free(block))")
            result = subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "HOME": home},
                capture_output=True,
                text=True,
                timeout=120,
            )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"^a block at 0x[0-9a-f]+ was freed\n$")


if __name__ == "__main__":
    unittest.main()
