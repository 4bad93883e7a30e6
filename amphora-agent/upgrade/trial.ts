import { existsSync, readFileSync } from 'node:fs'
import type { FailedUpgrade } from '../protocol/messages.js'
import { UPGRADE_FAILED_FILE } from '../protocol/paths.js'
import { confirmTrial, linked, removeUnused } from './links.js'

/** How long an agent on trial has to answer: longer where init is more patient with agents, in emulated machines. */
export const TRIAL_SECONDS = 30 + 2 * Number(process.env.PATIENCE ?? 0)

/**
 * Begins the trial of an agent that an upgrade has brought: unless it answers in time, this process ends, and the former
 * agent comes back. Call it before the agent takes requests: it removes what earlier upgrades have left.
 * @param own hash of this agent's file
 * @returns a function to call once it answers
 */
export function beginTrial(own: string): () => void {
  removeUnused()
  if (!isOnTrial(own)) return () => undefined
  const timer = setTimeout(() => {
    console.error(`amphora agent: no answer within ${TRIAL_SECONDS} s of its start`)
    process.exit(1)
  }, TRIAL_SECONDS * 1000)
  return () => {
    clearTimeout(timer)
    confirmTrial()
  }
}

export const isOnTrial = (own: string): boolean => linked('trial') === own

/** Why the latest upgrade did not come up; undefined if there was none, or it is this agent. */
export function failedUpgrade(): FailedUpgrade | undefined {
  if (!existsSync(UPGRADE_FAILED_FILE)) return undefined
  const [sha256 = '', ...output] = readFileSync(UPGRADE_FAILED_FILE, 'utf8').split('\n')
  return { sha256, output: output.join('\n').trim() }
}
