import { jsonAnswer } from '../../../api/answer.js'
import { formOf, objectOf, ref } from '../../../api/schema.js'
import { unwrap } from '../body.js'
import { route } from '../dialect.js'
import { collectionPath } from '../kinds.js'
import { interfaceSchema } from '../routers/interfaces.js'
import { routesSchema } from '../routers/routers.js'
import { IF_MATCH, itemForm, targetOf } from './resources.js'

const item = `${collectionPath('router')}/:id`
const common = { method: 'PUT', right: 'write', group: 'routers', status: 200, parameters: [IF_MATCH] } as const

/** The routes that connect a router and change its extra routes. */
export const routerActionRoutes = [
  route({
    ...common,
    path: `${item}/add_router_interface`,
    summary: 'Connect a subnet, by its gateway address, or an unused port to a router',
    requestForm: formOf(interfaceSchema),
    answer: ref('router_interface'),
    handle: async ({ routerActions }, call) =>
      jsonAnswer(200, await routerActions.addInterface(targetOf(call), await call.json())),
  }),
  route({
    ...common,
    path: `${item}/remove_router_interface`,
    summary: 'Disconnect a subnet or a port from a router; its port is deleted',
    requestForm: formOf(interfaceSchema),
    answer: ref('router_interface'),
    handle: async ({ routerActions }, call) =>
      jsonAnswer(200, await routerActions.removeInterface(targetOf(call), await call.json())),
  }),
  ...(['add_extraroutes', 'remove_extraroutes'] as const).map(action =>
    route({
      ...common,
      path: `${item}/${action}`,
      summary: action === 'add_extraroutes' ? 'Add extra routes to a router' : 'Remove extra routes from a router',
      requestForm: objectOf({ router: formOf(routesSchema) }),
      answer: itemForm('router'),
      handle: async ({ routerActions }, call) => {
        const [attributes] = unwrap(await call.json(), 'router').items
        return jsonAnswer(200, { router: await routerActions.changeRoutes(targetOf(call), action, attributes) })
      },
    }),
  ),
]
