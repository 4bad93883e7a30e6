import type { ChallengesPart } from '../protocol/desired.js'
import { CHALLENGES_FILE, CHALLENGES_PATH } from '../protocol/paths.js'
import type { Haproxy } from './haproxy.js'

/** The content of CHALLENGES_FILE. */
export const challengesText = (challenges: ChallengesPart | undefined): string => linesOf(challenges).join('')

const linesOf = (challenges: ChallengesPart | undefined): string[] =>
  (challenges?.http ?? []).map(({ token, keyAuthorization }) => `${CHALLENGES_PATH}${token} ${keyAuthorization}\n`)

/** HAProxy takes a command with its payload into one buffer. */
const LINES_AT_ONCE = 20

/**
 * Replaces the answers that HAProxy gives to challenges by HTTP. Requests see the former or the new ones, and no
 * connection notices.
 * @returns `unchanged`, `runtime`, or why only a reload can do it
 */
export async function updateChallenges(
  haproxy: Pick<Haproxy, 'command'>,
  before: ChallengesPart | undefined,
  desired: ChallengesPart | undefined,
): Promise<'unchanged' | 'runtime' | { reload: string }> {
  const text = challengesText(desired)
  if (challengesText(before) === text) return 'unchanged'
  const prepared = await haproxy.command(`prepare map ${CHALLENGES_FILE}`)
  const version = /New version created: (\d+)/.exec(prepared)?.[1]
  if (version === undefined) return refused(prepared)
  const lines = linesOf(desired)
  for (let at = 0; at < lines.length; at += LINES_AT_ONCE) {
    const payload = lines.slice(at, at + LINES_AT_ONCE).join('')
    const answer = await haproxy.command(`add map @${version} ${CHALLENGES_FILE} <<\n${payload}`)
    if (answer.trim() !== '') return refused(answer)
  }
  const answer = await haproxy.command(`commit map @${version} ${CHALLENGES_FILE}`)
  return answer.trim() === '' ? 'runtime' : refused(answer)
}

const refused = (answer: string) => ({ reload: `HAProxy refuses new answers to challenges: ${answer.trim()}` })
