import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { Database } from '../../../database/connection.js'
import type { Logger } from '../../../log/log.js'
import { markServed, removeChallenge, storeChallenge } from './challenge-rows.js'
import { type Challenge, type ChallengePublisher, NotServed } from './challenges.js'
import { oneLine } from './client/problem.js'

const run = promisify(execFile)

const MAX_OUTPUT_BYTES = 65_536

export type DnsHook = { argv: readonly string[]; timeoutSeconds: number }

type Failure = { code?: unknown; killed?: boolean; stdout?: string; stderr?: string }

/**
 * Publishes dns-01 by a program of the operator, without a shell. It gets KRATER_ACME_ACTION (publish or withdraw),
 * KRATER_ACME_IDENTIFIER, KRATER_ACME_RECORD (the name of the TXT record), KRATER_ACME_VALUE and KRATER_ACME_PROJECT, and
 * ends with status 0 when all name servers of the zone serve the record, or none does. A name may have several values at a
 * time.
 */
export function dnsHookPublisher(database: Database, hook: DnsHook, log: Logger): ChallengePublisher {
  return {
    publish: async (challenge, signal) => {
      if (await storeChallenge(database, challenge)) return
      if (!(await runHook(hook, 'publish', challenge, log, signal))) {
        throw new NotServed(`The record for ${challenge.identifier} could not be published.`)
      }
      await markServed(database, challenge)
    },
    withdraw: async challenge => {
      // If it fails, the row stays, and the next sweep tries again.
      if (await runHook(hook, 'withdraw', challenge, log)) await removeChallenge(database, challenge)
    },
  }
}

/** @returns whether it ended with status 0 */
async function runHook(
  { argv, timeoutSeconds }: DnsHook,
  action: 'publish' | 'withdraw',
  { identifier, digest, projectId }: Challenge,
  log: Logger,
  signal?: AbortSignal,
): Promise<boolean> {
  const [program = '', ...words] = argv
  const env = {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    KRATER_ACME_ACTION: action,
    KRATER_ACME_IDENTIFIER: identifier,
    KRATER_ACME_RECORD: `_acme-challenge.${identifier}`,
    KRATER_ACME_VALUE: digest.toString('base64url'),
    KRATER_ACME_PROJECT: projectId,
  }
  const limits = { timeout: timeoutSeconds * 1000, killSignal: 'SIGKILL', maxBuffer: MAX_OUTPUT_BYTES } as const
  const child = run(program, words, { ...limits, env, cwd: '/', ...(signal !== undefined && { signal }) })
  child.child.stdin?.end()
  const outcome = await child.then(
    output => ({ ok: true, status: 0 as unknown, ...output }),
    (failure: Failure) => ({
      ok: false,
      status: failure.killed === true ? 'killed' : failure.code,
      stdout: failure.stdout ?? '',
      stderr: failure.stderr ?? '',
    }),
  )
  const { ok, status, stdout, stderr } = outcome
  const details = { action, identifier, status, stdout: oneLine(stdout), stderr: oneLine(stderr) }
  if (ok) log.info(details, 'the hook for DNS challenges ended')
  else log.warn(details, 'the hook for DNS challenges failed')
  return ok
}
