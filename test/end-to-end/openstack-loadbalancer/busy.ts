import type { Test } from 'tap'
import { runningProcesses } from '../../../controller/cli/state-directory/run-record.js'
import { until } from '../../support/worlds/krater.js'
import type { Scene } from './scene.js'

/** Commands while a change is pending: further changes are accepted, but objects being deleted are immutable. */
export async function busy(t: Test, { krater, member, admin }: Scene): Promise<void> {
  await member.done('loadbalancer create --name road --provider noop_driver --vip-subnet-id s --wait')
  const pool = '--protocol HTTP --lb-algorithm ROUND_ROBIN --loadbalancer road'
  for (const name of ['lane', 'path']) await member.done(`loadbalancer pool create --name ${name} ${pool} --wait`)
  const workers = runningProcesses(krater.directory).filter(({ name }) => name === 'worker')
  const signal = (name: 'SIGSTOP' | 'SIGCONT') => {
    for (const { identity } of workers) process.kill(identity.pid, name)
  }
  const statusOf = async (line: string) => (await member.show(line)).provisioning_status
  signal('SIGSTOP')
  try {
    await member.done('loadbalancer set --description works road')
    t.equal(await statusOf('loadbalancer show road'), 'PENDING_UPDATE')
    t.match(
      await member.show('loadbalancer listener create --name exit --protocol HTTP --protocol-port 80 road'),
      { provisioning_status: 'PENDING_CREATE' },
      'a second change while the first is pending',
    )
    await member.done('loadbalancer pool set --description wide lane')
    t.equal(await statusOf('loadbalancer pool show lane'), 'PENDING_UPDATE')
    t.equal(await statusOf('loadbalancer pool show path'), 'ACTIVE')

    await member.done('loadbalancer pool delete path')
    t.equal(await statusOf('loadbalancer pool show path'), 'PENDING_DELETE')
    const onPool = [
      'loadbalancer pool set --description x path',
      'loadbalancer pool unset --description path',
      'loadbalancer member create --address 192.0.2.1 --protocol-port 80 path',
      'loadbalancer healthmonitor create --type HTTP --delay 5 --timeout 4 --max-retries 3 path',
    ]
    const immutable = { status: 1, stderr: /is immutable and cannot be updated.*\(HTTP 409\) \(Request-ID: req-/ }
    for (const line of onPool) t.match(await member.refused(line), immutable, line)

    await member.done('loadbalancer delete --cascade road')
    t.equal(await statusOf('loadbalancer show road'), 'PENDING_DELETE')
    const onBalancer = [
      'loadbalancer set --description again road',
      'loadbalancer unset --description road',
      'loadbalancer listener create --protocol HTTP --protocol-port 81 road',
      'loadbalancer listener set --description x exit',
      `loadbalancer pool create ${pool}`,
      'loadbalancer member create --address 192.0.2.1 --protocol-port 80 lane',
    ]
    for (const line of onBalancer) t.match(await member.refused(line), immutable, line)
    t.match(await admin.refused('loadbalancer failover road'), immutable)
  } finally {
    signal('SIGCONT')
  }
  await until(
    'the load balancer is gone',
    async () => (await member.list('loadbalancer list --name road')).length === 0,
  )
}
