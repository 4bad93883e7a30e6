import { execFile } from 'node:child_process'
import type { Test } from 'tap'
import { clientEnvironment } from '../../support/clients/openstack-session.js'
import { MISSING, type Scene } from './scene.js'

/** The program itself: its output and exit status match those that the sessions of the other cases show. */
export async function executable(t: Test, { krater, member, file }: Scene): Promise<void> {
  const openstack = (...words: string[]) =>
    new Promise<{ status: number | null; stdout: string; stderr: string }>(resolve => {
      const env = clientEnvironment(krater, 'krater')
      const child = execFile('openstack', words, { env, timeout: 120_000 }, (_, stdout, stderr) =>
        resolve({ status: child.exitCode, stdout, stderr }),
      )
    })

  const payload = 'first line\nsecond line: ✓\n'
  const made = await openstack('secret', 'store', '--name', 'a file', '--file', file('payload', payload), '-f', 'json')
  t.equal(made.status, 0)
  const href: string = JSON.parse(made.stdout)['Secret href']
  const [read, missing] = await Promise.all([
    openstack('--os-key-manager-api-version', '1', 'secret', 'get', href, '--payload', '-f', 'value'),
    openstack('secret', 'get', MISSING),
  ])
  t.match(read, { status: 0, stdout: `${payload}\n` })
  t.match(missing, {
    status: 1,
    stdout: '',
    stderr: /^4xx Client error: Not Found: Secret not found\.\nNot Found: Secret not found\.\n$/,
  })
  await member.done(`secret delete ${href}`)
}
