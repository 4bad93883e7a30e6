import { runTool } from '../../local/ip-command.js'
import type { MapPhysical } from '../keep-physical.js'
import type { Datapath } from '../own/daemons.js'

const BRIDGES = /^ox[0-9a-f]{11}$/

/** @param socket of the switch's database */
export function physicalMapper(socket: string, datapath: Datapath): MapPhysical {
  const vsctl = (...words: string[]) => runTool(['ovs-vsctl', `--db=unix:${socket}`, '--no-wait', ...words], '')
  return async places => {
    const present = (await vsctl('list-br')).split('\n').filter(name => BRIDGES.test(name))
    const superfluous = present.filter(name => !places.some(({ bridge }) => bridge === name))
    const mappings = places.map(({ name, bridge }) => `${name}:${bridge}`).join(',')
    const commands = [
      ...places.flatMap(({ bridge, port }) => [
        ['--may-exist', 'add-br', bridge],
        // It passes on what OVN and the physical network say, and has no controller.
        ['set', 'bridge', bridge, `datapath_type=${datapath}`, 'fail_mode=standalone'],
        ['--may-exist', 'add-port', bridge, port],
      ]),
      mappings === ''
        ? ['remove', 'open_vswitch', '.', 'external-ids', 'ovn-bridge-mappings']
        : ['set', 'open_vswitch', '.', `external-ids:ovn-bridge-mappings="${mappings}"`],
      ...superfluous.map(name => ['--if-exists', 'del-br', name]),
    ]
    await vsctl(...commands.flatMap((words, index) => (index === 0 ? words : ['--', ...words])))
  }
}
