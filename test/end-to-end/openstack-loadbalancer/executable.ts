import { execFile } from 'node:child_process'
import type { Test } from 'tap'
import { clientEnvironment } from '../../support/clients/openstack-session.js'
import type { Scene } from './scene.js'

/** The program itself: its output and exit status match those that the sessions of the other cases show. */
export async function executable(t: Test, { krater, member }: Scene): Promise<void> {
  const openstack = (line: string) =>
    new Promise<{ status: number | null; stdout: string; stderr: string }>(resolve => {
      const child = execFile(
        'openstack',
        line.split(' '),
        { env: clientEnvironment(krater, 'krater'), timeout: 120_000 },
        (_, stdout, stderr) => resolve({ status: child.exitCode, stdout, stderr }),
      )
    })

  const made = await openstack(
    'loadbalancer create --name lone --provider noop_driver --vip-subnet-id s --tag a --wait -f json',
  )
  t.equal(made.status, 0)
  t.same(JSON.parse(made.stdout), await member.show('loadbalancer show lone'))
  t.match(await openstack('loadbalancer show nowhere'), {
    status: 1,
    stdout: '',
    stderr: /^Unable to locate nowhere in loadbalancers$/m,
  })
  t.match(await openstack('loadbalancer list --operating-status FINE'), { status: 2, stderr: /invalid choice: 'FINE'/ })
  t.match(await openstack('loadbalancer delete lone'), { status: 0, stdout: '' })
}
