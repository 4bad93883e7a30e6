import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { inspect } from '../../../../x509/material/inspect.js'
import { itemsOf } from '../../../../x509/material/load.js'
import { Unusable } from '../../../../x509/material/material.js'
import { KeyManagerUnavailable } from '../errors.js'
import { createKeyManagerClient } from '../key-manager-client.js'
import { createReader } from '../reader.js'
import type { ServiceUser } from '../service-user.js'
import { type CheckJob, type CheckLine, checkJob } from './job.js'

/**
 * A process for one check of references: it alone sees keys, and writes only what is public in them. It starts with its
 * parent's account, and has no rights left before it reads its job. It ends with its parent, and in any case in time.
 */
const NOBODY = 65_534
const LIFE_MS = 120_000

class TokenRefused extends Error {}

function dropRights(): void {
  if (process.getuid?.() !== 0) return
  process.setgroups?.([])
  process.setgid?.(NOBODY)
  process.setuid?.(NOBODY)
}

/** At once, so that the parent knows what costs the time of a process that it ends. */
const write = (line: CheckLine): void => {
  writeSync(1, `${JSON.stringify(line)}\n`)
}

/** Has one token. Only the parent can sign in. */
function fixedUser({ token, userId }: CheckJob['serviceUser']): ServiceUser {
  let isRefused = false
  return {
    signedIn: async () => {
      if (isRefused) throw new TokenRefused()
      return { token, userId }
    },
    discard: () => {
      isRefused = true
    },
  }
}

async function check({ keyManager, token, serviceUser, requested, skip, maxConcurrentReads }: CheckJob): Promise<void> {
  const { ca, insecure } = keyManager.security
  const client = createKeyManagerClient({ ...keyManager, security: { insecure, ...(ca !== undefined && { ca }) } })
  const failure = new AbortController()
  const reader = createReader({ client, serviceUser: fixedUser(serviceUser), token, signal: failure.signal })
  const pending = [...itemsOf(requested).entries()].filter(([index]) => !skip.includes(index)).values()
  const checkSome = async (): Promise<void> => {
    for (const [index, item] of pending) {
      if (failure.signal.aborted) return
      try {
        const material = await item.load(reader)
        write({ begins: index })
        write({ found: index, inspected: inspect(material) })
      } catch (error) {
        if (!(error instanceof Unusable)) throw error
        write({ found: index, inspected: { wrong: error.message } })
      }
    }
  }
  try {
    const checkOrAbort = () => checkSome().catch(error => failure.abort(error))
    await Promise.all(Array.from({ length: maxConcurrentReads }, checkOrAbort))
    failure.signal.throwIfAborted()
  } finally {
    client.close()
  }
}

function report(error: unknown): void {
  if (error instanceof TokenRefused) write({ refused: true })
  else if (error instanceof KeyManagerUnavailable) write({ unavailable: error.message })
  else throw error
}

dropRights()
setTimeout(() => process.exit(1), LIFE_MS)
const lines = createInterface({ input: process.stdin })
lines.once('line', line => {
  check(checkJob.parse(JSON.parse(line)))
    .catch(report)
    .then(
      () => process.exit(0),
      // Nothing else is shown: an error may quote what it was about.
      (error: unknown) => {
        console.error(error instanceof Error ? error.name : 'unknown error')
        process.exit(1)
      },
    )
})
lines.once('close', () => process.exit(1))
