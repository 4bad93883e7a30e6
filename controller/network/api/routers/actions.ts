import type { Database } from '../../../database/connection.js'
import type { Item, Target } from '../resource.js'
import { addInterface, type Interface, removeInterface } from './interfaces.js'
import { changeRoutes } from './routers.js'

/** What can be done to a router besides changing its attributes. All throw NeutronError. */
export type RouterActions = {
  addInterface: (target: Target, body: unknown) => Promise<Interface>
  removeInterface: (target: Target, body: unknown) => Promise<Interface>
  changeRoutes: (target: Target, action: 'add_extraroutes' | 'remove_extraroutes', body: unknown) => Promise<Item>
}

/** The actions of routers in Krater's own tables. */
export const createRouterActions = (database: Database): RouterActions => ({
  addInterface: (target, body) => addInterface(database, target, body),
  removeInterface: (target, body) => removeInterface(database, target, body),
  changeRoutes: (target, action, body) => changeRoutes(database, target, action, body),
})
