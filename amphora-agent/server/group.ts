import { chmodSync, chownSync, existsSync, readFileSync } from 'node:fs'

/** The group that may connect to the agent: that of the controller's login. */
const GROUP = 'krater'

/** Lets the controller's login connect to a socket. */
export function openToController(path: string): void {
  const group = groupId()
  if (group !== null) chownSync(path, 0, group)
  chmodSync(path, 0o660)
}

function groupId(): number | null {
  const text = existsSync('/etc/group') ? readFileSync('/etc/group', 'utf8') : ''
  const line = text.split('\n').find(candidate => candidate.startsWith(`${GROUP}:`))
  return line === undefined ? null : Number(line.split(':')[2])
}
