import { mkdirSync, renameSync, rmSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import type { Log } from '../log/log.js'
import { AnswerError, type Request } from '../protocol/messages.js'
import { AGENTS_DIRECTORY, UPGRADE_FAILED_FILE } from '../protocol/paths.js'
import { checkAgent } from './check.js'
import { agentFile, setLink, syncAgents } from './links.js'
import { sha256Of } from './own-bundle.js'

/**
 * Stores another agent beside this one and checks that it can run here. The next start of the agent tries it. Not safe to
 * run twice at a time.
 * @param bootFile the boot data that it will read
 * @throws AnswerError `upgrade-refused`; then nothing has changed
 */
export async function prepareUpgrade(
  { sha256, bundle }: Extract<Request, { verb: 'upgrade' }>,
  bootFile: string,
  log: Log,
): Promise<void> {
  const bytes = Buffer.from(bundle, 'base64')
  const arrived = sha256Of(bytes)
  if (arrived !== sha256) throw refused('The bundle has another SHA-256 than it should.', arrived)
  mkdirSync(AGENTS_DIRECTORY, { recursive: true })
  const staged = join(AGENTS_DIRECTORY, 'staged.mjs')
  try {
    await writeDurably(staged, bytes).catch((error: NodeJS.ErrnoException) => {
      throw refused('The bundle cannot be stored.', error.message)
    })
    const problem = await checkAgent(staged, bootFile)
    if (problem !== null) throw refused('The new agent does not start.', problem)
  } catch (error) {
    rmSync(staged, { force: true })
    throw error
  }
  renameSync(staged, agentFile(sha256))
  syncAgents()
  rmSync(UPGRADE_FAILED_FILE, { force: true })
  setLink('next', sha256)
  log.info(`the agent ${sha256.slice(0, 8)} is tried at the next start`)
}

async function writeDurably(path: string, bytes: Buffer): Promise<void> {
  const file = await open(path, 'w', 0o644)
  try {
    await file.writeFile(bytes)
    await file.sync()
  } finally {
    await file.close()
  }
}

const refused = (message: string, details: string): AnswerError =>
  new AnswerError({ code: 'upgrade-refused', message, details })
