/**
 * The files of modules and of all that they need, in the order in which the kernel takes them.
 * @param dependencies the text of modules.dep
 * @param builtIn the text of modules.builtin: modules that are part of the kernel, and need no file
 * @param names of modules, with either `-` or `_`
 * @throws Error for a module that there is not
 */
export function modulesInOrder(dependencies: string, builtIn: string, names: readonly string[]): string[] {
  const inKernel = new Set(builtIn.split('\n').map(moduleName))
  const needs = new Map(
    dependencies
      .split('\n')
      .filter(line => line !== '')
      .map(line => {
        const [path = '', others = ''] = line.split(':')
        return [path, others.split(' ').filter(Boolean)] as const
      }),
  )
  const paths = new Map([...needs.keys()].map(path => [moduleName(path), path]))
  const ordered = names.flatMap(name => {
    const path = paths.get(moduleName(name))
    if (path === undefined && inKernel.has(moduleName(name))) return []
    if (path === undefined) throw new Error(`The kernel has no module ${name}.`)
    // depmod lists first what is loaded last.
    return [...[...(needs.get(path) ?? [])].reverse(), path]
  })
  return [...new Set(ordered)]
}

/** As the kernel shows it. @param path of a file, or a name */
export function moduleName(path: string): string {
  return path
    .replace(/^.*\//, '')
    .replace(/\.ko(\..*)?$/, '')
    .replaceAll('-', '_')
}
