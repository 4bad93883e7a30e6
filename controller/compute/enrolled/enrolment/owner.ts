import type { EnrolledHost } from '../hosts.js'

type Known = Pick<EnrolledHost, 'id' | 'name' | 'address' | 'state' | 'hostKey'>

/**
 * Whether a host is a new one, one whose enrolment goes on, or one that this installation enrolled and does not know any
 * more, because an operator had it forgotten or the database is an older copy. Pure.
 * @param owner `INSTALLATION HOST`, as the host has it written down; null if nobody has enrolled it
 * @param installations this installation's id, and that of this controller host, which earlier versions wrote down
 * @param hosts all that are known
 * @param hostKey that the host has shown
 * @param atAddress the one of `hosts` at its address
 * @returns its id, null for a new one, with the id of a former enrolment that is to be undone first; a sentence if it
 *   cannot be enrolled
 */
export function judgeOwner(
  owner: string | null,
  {
    installations,
    hosts,
    hostKey,
    atAddress,
  }: { installations: readonly string[]; hosts: readonly Known[]; hostKey: Buffer; atAddress: Known | undefined },
): { id: string | null; forgotten: string | null } | { problem: string } {
  const atHand = atAddress?.id ?? null
  if (owner === null) return { id: atHand, forgotten: null }
  const [installation = '', id = ''] = owner.split(' ')
  const known = hosts.find(host => host.id === id)
  if (known === undefined) {
    return installations.includes(installation) && UUID.test(id)
      ? { id: atHand, forgotten: id }
      : {
          problem: `It is enrolled by another installation of Krater (${installation}), which must retire it first. docs/enrolled-hosts.md says how to undo that by hand.`,
        }
  }
  const place = `${known.name} (${known.address})`
  if (!known.hostKey.equals(hostKey)) return { problem: `It says that it is ${place}, which has another host key.` }
  if (known.state !== 'enrolling') return { problem: `It is enrolled already, as ${place}, and ${known.state}.` }
  if (atAddress === undefined || atAddress === known) return { id, forgotten: null }
  return {
    problem: `It is ${place}, but ${atAddress.name} is known at its address. Forget that one first: krater amphora retire ${atAddress.name} --forget.`,
  }
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
