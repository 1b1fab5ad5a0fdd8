// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// diskVFS is the name of a file system for SQLite that works like the default
// one and asks a disk first. Tests that use it do not run in parallel.
const diskVFS = "roux-test-disk"

// A disk decides what happens to writes and syncs. Its methods are called in the
// goroutine that uses the connection, and may use another one. They return a result code of SQLite; anything
// but SQLITE_OK keeps the call from reaching the file.
type disk struct {
	write func(wal bool, data []byte, off int64) int32
	sync  func(wal bool) int32
}

var vfs struct {
	once sync.Once
	disk atomic.Pointer[disk]

	mu      sync.Mutex
	kinds   map[uintptr]bool    // open file -> is the write-ahead log
	tables  map[uintptr]uintptr // methods of the default file system -> ours
	methods map[uintptr]uintptr // and back
	open    uintptr
}

// useDisk puts d under all stores opened with the returned vfs.
func useDisk(d *disk) string {
	vfs.once.Do(registerVFS)
	vfs.disk.Store(d)
	return diskVFS
}

func funcPointer(f any) uintptr {
	type iface [2]uintptr
	return (*iface)(unsafe.Pointer(&f))[1]
}

// at is the C value at an address. The address is not Go's, so the collector
// has no business with it.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// call turns a C function pointer into a function.
func call[F any](pointer uintptr) F { return *(*F)(unsafe.Pointer(&pointer)) }

func registerVFS() {
	vfs.kinds, vfs.tables, vfs.methods = map[uintptr]bool{}, map[uintptr]uintptr{}, map[uintptr]uintptr{}
	tls := libc.NewTLS() // lives as long as the file system does
	base := lib.Xsqlite3_vfs_find(tls, 0)
	size := unsafe.Sizeof(lib.Tsqlite3_vfs{})
	ours := libc.Xmalloc(tls, libc.Tsize_t(size))
	v := at[lib.Tsqlite3_vfs](ours)
	*v = *at[lib.Tsqlite3_vfs](base)
	vfs.open = v.FxOpen
	name, err := libc.CString(diskVFS)
	if err != nil {
		panic(err)
	}
	v.FzName = name
	v.FxOpen = funcPointer(vfsOpen)
	if rc := lib.Xsqlite3_vfs_register(tls, ours, 0); rc != lib.SQLITE_OK {
		panic(rc)
	}
}

func vfsOpen(tls *libc.TLS, v, name, file uintptr, flags int32, out uintptr) int32 {
	open := call[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](vfs.open)
	rc := open(tls, v, name, file, flags, out)
	f := at[lib.Tsqlite3_file](file)
	if rc != lib.SQLITE_OK || f.FpMethods == 0 || flags&(lib.SQLITE_OPEN_MAIN_DB|lib.SQLITE_OPEN_WAL) == 0 {
		return rc
	}
	vfs.mu.Lock()
	defer vfs.mu.Unlock()
	ours, ok := vfs.tables[f.FpMethods]
	if !ok {
		ours = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
		m := at[lib.Tsqlite3_io_methods](ours)
		*m = *at[lib.Tsqlite3_io_methods](f.FpMethods)
		m.FxWrite, m.FxSync = funcPointer(vfsWrite), funcPointer(vfsSync)
		vfs.tables[f.FpMethods], vfs.methods[ours] = ours, f.FpMethods
	}
	f.FpMethods = ours
	vfs.kinds[file] = flags&lib.SQLITE_OPEN_WAL != 0
	return rc
}

// original returns the default methods of a file and whether it is the log.
func original(file uintptr) (*lib.Tsqlite3_io_methods, bool) {
	vfs.mu.Lock()
	defer vfs.mu.Unlock()
	m := vfs.methods[at[lib.Tsqlite3_file](file).FpMethods]
	return at[lib.Tsqlite3_io_methods](m), vfs.kinds[file]
}

func vfsWrite(tls *libc.TLS, file, buf uintptr, n int32, off lib.Tsqlite3_int64) int32 {
	m, wal := original(file)
	if d := vfs.disk.Load(); d != nil && d.write != nil {
		if rc := d.write(wal, unsafe.Slice(at[byte](buf), n), off); rc != lib.SQLITE_OK {
			return rc
		}
	}
	return call[func(*libc.TLS, uintptr, uintptr, int32, lib.Tsqlite3_int64) int32](m.FxWrite)(tls, file, buf, n, off)
}

func vfsSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	m, wal := original(file)
	if d := vfs.disk.Load(); d != nil && d.sync != nil {
		if rc := d.sync(wal); rc != lib.SQLITE_OK {
			return rc
		}
	}
	return call[func(*libc.TLS, uintptr, int32) int32](m.FxSync)(tls, file, flags)
}
