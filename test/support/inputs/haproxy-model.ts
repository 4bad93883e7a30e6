import { createHash } from 'node:crypto'
import type { RuntimeCommand } from '../../../amphora-agent/haproxy/plan-transition.js'
import type { Backend, HaproxyPart, Server } from '../../../amphora-agent/protocol/desired.js'

const sha256 = (value: unknown) => createHash('sha256').update(JSON.stringify(value)).digest('hex')

/**
 * A part whose skeleton depends on everything except the servers, as the renderer's does; there is no tree to
 * render it from.
 */
export function part(backends: Backend[], skeleton = ''): HaproxyPart {
  const frame = [skeleton, backends.map(({ name, dynamic }) => [name, dynamic])]
  return {
    text: '',
    sha256: sha256([frame, backends]),
    skeletonSha256: sha256(frame),
    frontends: [],
    backends,
    tls: { files: [], lists: [] },
  }
}
export const backend = (servers: Server[], dynamic = true): Backend => ({
  name: 'p:l',
  dynamic,
  deregistrationDelay: 30,
  servers,
})
export const server = (number: number, changes: Partial<Server> = {}): Server => ({
  name: `m${number}`,
  number,
  address: '192.0.2.1',
  port: 80,
  weight: 1,
  disabled: false,
  backup: false,
  options: ['check', 'inter', '5s'],
  ...changes,
})

/** The servers of one worker, by path. */
export type Model = Map<
  string,
  { number: number; address: string; port: number; weight: number; maintenance: boolean; checked: boolean }
>

export function modelOf({ backends }: HaproxyPart): Model {
  return new Map(
    backends.flatMap(({ name, servers }) =>
      servers.map(each => [
        `${name}/${each.name}`,
        {
          number: each.number,
          address: each.address,
          port: each.port,
          weight: each.weight,
          maintenance: each.disabled,
          checked: each.options.includes('check'),
        },
      ]),
    ),
  )
}

/**
 * A model of HAProxy's runtime socket as far as the agent uses it, from its real answers. Independent of the
 * agent, which it judges.
 */
export function obey(model: Model, text: string): RuntimeCommand['expect'] | string {
  const [verb, object, path = '', ...rest] = text.split(' ')
  const known = model.get(path)
  switch (`${verb} ${object}`) {
    case 'add server': {
      const [backendName] = path.split('/')
      const [endpoint = '', ...words] = rest
      const word = (name: string) => words[words.indexOf(name) + 1] ?? ''
      const number = Number(word('id'))
      const sameNumber = [...model].some(
        ([other, each]) => other.startsWith(`${backendName}/`) && each.number === number,
      )
      if (known || sameNumber) return 'already used'
      const colon = endpoint.lastIndexOf(':')
      const address = endpoint.slice(0, colon).replace(/^\[|\]$/g, '')
      model.set(path, {
        number,
        address,
        port: Number(endpoint.slice(colon + 1)),
        weight: Number(word('weight')),
        maintenance: true,
        checked: words.includes('check'),
      })
      return 'New server registered.'
    }
    case 'enable health':
      return known?.checked ? '' : 'Health check was not configured on this server, cannot enable.'
    case 'enable server':
    case 'set server': {
      if (!known) return 'No such server.'
      if (rest[0] === 'weight') known.weight = Number(rest[1])
      else known.maintenance = rest[1] === 'maint'
      return ''
    }
    case 'del server': {
      if (!known) return 'No such server.'
      if (!known.maintenance) return 'Only servers in maintenance mode can be deleted.'
      model.delete(path)
      return 'Server deleted.'
    }
    default:
      return 'Unknown command'
  }
}

/** The answer to `show servers state`. */
export function dump(model: Model): string {
  const lines = [...model].map(([path, { number, address, port, weight, maintenance }]) => {
    const [backendName, name] = path.split('/')
    return `3 ${backendName} ${number} ${name} ${address} 2 ${maintenance ? 1 : 0} ${weight} 1 9 1 0 2 6 0 0 1 - ${port} - 0 0 - - 0`
  })
  return ['1', '# be_id be_name srv_id', ...lines].join('\n')
}
