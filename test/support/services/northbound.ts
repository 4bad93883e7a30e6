import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { Northbound } from '../../../controller/ovn/northbound/northbound.js'
import { rowUuid } from '../../../controller/ovn/northbound/row-uuid.js'
import { quiet } from '../worlds/machines.js'
import { standaloneServer } from './ovsdb.js'

export const INSTANCE = 'abcdef'
const SCHEMA = '/usr/share/ovn/ovn-nb.ovsschema'

/** A northbound database of its own, without rows. It ends with the test. @returns what opens connections to it */
export async function startNorthbound(t: Test): Promise<() => Promise<Northbound>> {
  const directory = mkdtempSync(join(tmpdir(), 'ovs-'))
  const server = await standaloneServer(directory, SCHEMA)
  await server.start()
  const opened: Northbound[] = []
  t.teardown(async () => {
    await Promise.all(opened.map(northbound => northbound.stop()))
    await server.end()
    rmSync(directory, { recursive: true })
  })
  const open = async () => {
    const northbound = new Northbound({ addresses: [server.address], instance: INSTANCE, log: quiet })
    opened.push(northbound)
    await northbound.client.ready(10_000)
    return northbound
  }
  const { client } = await open()
  await client.transact([{ op: 'insert', table: 'NB_Global', uuid: rowUuid(INSTANCE, 'global'), row: { nb_cfg: 0 } }], {
    comment: 'ovn-nbctl init',
  })
  return open
}
