import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync } from 'node:zlib'
import { build } from 'esbuild'

// node scripts/freeze-agent.js COMMIT: makes the agent of a commit the older one with which tests try this controller.
// Run it with the commit of each release. The repository keeps the result, since a shallow clone lacks the commit.

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const commit = process.argv[2]
if (commit === undefined) throw new Error('node scripts/freeze-agent.js COMMIT')
const directory = mkdtempSync(join(tmpdir(), 'krater-agent-'))
try {
  const sources = execFileSync('git', ['archive', commit, 'amphora-agent', 'x509'], { cwd: root, maxBuffer: 2 ** 28 })
  execFileSync('tar', ['-x', '-C', directory], { input: sources })
  symlinkSync(join(root, 'node_modules'), join(directory, 'node_modules'))
  const { outputFiles } = await build({
    entryPoints: [join(directory, 'amphora-agent/main.ts')],
    ...{ bundle: true, minify: true, legalComments: 'none', platform: 'node', target: 'node20', format: 'esm' },
    banner: {
      js: "import { createRequire as requireFrom } from 'node:module'\nconst require = requireFrom(import.meta.url)",
    },
    write: false,
  })
  writeFileSync(join(root, 'test/support/inputs/older-agent.mjs.br'), brotliCompressSync(outputFiles[0].contents))
} finally {
  rmSync(directory, { recursive: true })
}
